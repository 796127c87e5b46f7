"""The programs of `numpy_programs.py`, ported by hand to other libraries, each as its users write it.

A port is a function with the program's name; its parameters are the inputs that the program reads.  A library that a program cannot be said
in has no port of it: `WITHOUT` says why.
"""
