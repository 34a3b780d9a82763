// Package policy parses the words in which a Service's owner says where connections may go: annotations and fields.
//
// An admission webhook, which judges a Service before the proxy sees it, can call the same parser, and so deny exactly
// what the proxy would ignore. It knows nothing of endpoints, nodes or the kernel, and its parsers panic on no input.
package policy
