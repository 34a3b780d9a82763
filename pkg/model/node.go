package model

// Node is what the proxy keeps of a v1 Node.
type Node struct {
	Name   string
	Labels map[string]string
}
