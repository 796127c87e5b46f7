// The timeline of a report: the wheel zooms around the pointer, dragging moves, a double click shows everything.
// A link to a graph opens what it leads to.

const WHOLE = 1000; // the width of the drawing, in its own units

function timeline(chart) {
  const svg = chart.querySelector("svg");
  const ticks = chart.querySelector(".ticks");
  const height = svg.viewBox.baseVal.height;
  const seconds = Number(chart.dataset.span);
  let left = 0;
  let width = WHOLE;
  let drag = null;

  function label(at, step) {
    if (step >= 0.1) return `${+at.toFixed(1)} s`;
    if (step >= 1e-4) return `${+(at * 1e3).toFixed(1)} ms`;
    return `${+(at * 1e6).toFixed(1)} µs`;
  }

  function show() {
    width = Math.min(WHOLE, Math.max(width, 1e-4));
    left = Math.min(Math.max(left, 0), WHOLE - width);
    svg.setAttribute("viewBox", `${left} 0 ${width} ${height}`);
    const seen = (seconds * width) / WHOLE;
    const power = 10 ** Math.floor(Math.log10(seen / 4));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => seen / s <= 8);
    const begin = (seconds * left) / WHOLE;
    ticks.replaceChildren();
    for (let at = Math.ceil(begin / step) * step; at <= begin + seen; at += step) {
      const mark = document.createElement("span");
      const place = (100 * (at - begin)) / seen;
      mark.textContent = label(at, step);
      mark.style.left = `${place}%`;
      if (place < 3) mark.style.transform = "none";
      if (place > 97) mark.style.transform = "translateX(-100%)";
      ticks.append(mark);
    }
  }

  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width;
    const under = left + at * width;
    width = Math.min(WHOLE, width * (event.deltaY > 0 ? 1.25 : 0.8));
    left = under - at * width;
    show();
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, left };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (drag === null) return;
    left = drag.left - ((event.clientX - drag.x) / svg.getBoundingClientRect().width) * width;
    show();
  });
  svg.addEventListener("pointerup", () => { drag = null; });
  svg.addEventListener("dblclick", () => {
    left = 0;
    width = WHOLE;
    show();
  });
  show();
}

function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  const folded = target?.closest("details");
  if (folded) folded.open = true;
  target?.scrollIntoView();
}

document.querySelectorAll(".chart").forEach(timeline);
addEventListener("hashchange", reveal);
reveal();
