// Package sysctl compares kernel settings, the entries below /proc/sys, with what a service proxy needs (desired.go),
// and writes those that are not only checked (enforcer.go; package daemon runs it in kernel_settings.go).
//
// The desired values are computed by a pure function. Results are returned, and the caller logs them. That a setting
// cannot be written is not an error: a container without privileges sees /proc/sys read-only.
package sysctl
