// Package daemon runs the proxy on a node: it connects the sources, the kernel, the servers and the log, and lets them
// work side by side until it is told to stop.
package daemon
