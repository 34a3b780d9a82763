// Package sysctl compares kernel settings, the entries below /proc/sys, with what a service proxy needs, and changes
// those that it is asked to.
//
// What is needed is a function of values. What was found, written and refused is returned, and the caller logs it: a
// container without privileges sees /proc/sys and may not write there, which is no failure.
package sysctl
