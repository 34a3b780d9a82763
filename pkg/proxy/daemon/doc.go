// Package daemon runs the proxy on a node: it connects the sources, the kernel, the servers and the log, and lets them
// work side by side until its context ends.
package daemon
