// Package model holds Services, EndpointSlices and Nodes as plain values, and the state of the cluster they make up.
//
// It knows nothing of Kubernetes' own types, of clocks, logs, sockets or nftables. Package convert turns API objects
// into these values and refuses the impossible on the way, so everything here may be trusted: ports are real ports,
// addresses are real addresses, names fit in a kernel object's name.
package model
