//go:build linux

// Package flows reports where a node's connections currently go, by Service, endpoint and tier, from one conntrack
// dump. It keeps no state. report.go decides what a report counts and in which order it lists it; text.go prints it.
package flows
