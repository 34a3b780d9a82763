// Package daemon runs the proxy on a node: it connects the sources, the kernel, the servers and the log, and runs them
// concurrently until its context ends.
//
// Where to make a change: daemon.go lists the components of a daemon, component.go defines a component, and options.go
// has the options. findings.go reports findings in the log, Events, metrics and pages; other_proxies.go does so for
// other service proxies. condition.go and observer.go set the Node's condition. drift.go triggers repairs after
// external modifications. kernel_settings.go keeps kernel settings as desired. files.go lists the files whose change
// restarts the daemon. check.go is `run --check` on a node, and serviceports.go has the metrics of Service ports.
package daemon
