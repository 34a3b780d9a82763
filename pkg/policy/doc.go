// Package policy parses the annotations and fields of a Service that determine where its connections may go.
//
// The admission webhook calls the same parser, so it can deny exactly what the proxy would ignore. The package does not
// depend on endpoints, nodes or the kernel, and its parsers panic on no input.
//
// What the topology annotations mean, and when they are ignored, is in parse.go; lists of keys are parsed in keys.go.
// Load bounds and the demand behind them are in bound.go, maxload.go, clients.go and demandsource.go; evacuation is in
// evacuate.go.
//
// To add an annotation of Services, add a row to annotations.go and its pass to parse.go, then run
// `go test ./pkg/policy -update`. Labels of Nodes, defaults of Namespaces and other names are in annotations.go, too.
package policy
