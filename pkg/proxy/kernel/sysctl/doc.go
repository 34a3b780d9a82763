// Package sysctl compares kernel settings, the entries below /proc/sys, with what a service proxy needs (desired.go),
// and writes those that are not only checked (enforcer.go; package daemon runs it in kernel_settings.go).
//
// The desired values are a pure function. What was found, written and not permitted is returned, and the caller logs
// it: a container without privileges sees /proc/sys and may not write there, which is no failure.
package sysctl
