// Package explain turns decisions into a report: which endpoints each Service port uses on a node, why, and which ones
// are excluded. It is text for people, and JSON or YAML for machines.
//
// It decides nothing itself: package selection makes all decisions that it prints, so its output cannot differ from the
// tables.
//
// Where to make a change: the text is in text.go and lines.go, shortened in condense.go, and written port by port in
// stream.go. all.go explains all nodes, and pkg/selection/nodegroups.go groups them. clients.go has the settings about
// clients, demand.go the demand behind a load bound, rejections.go the Services that the kernel rejects, and unused.go
// why an EndpointSlice has no effect on a port. digits.go rounds numbers for machines.
package explain
