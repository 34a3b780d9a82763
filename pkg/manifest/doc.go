// Package manifest reads the Kubernetes objects of YAML and JSON files: several documents in a file, and Lists in
// them.
//
// Errors are returned as values along with the good objects, each about the smallest part that it concerns. The caller
// decides what an object means.
//
//	scan     which files a folder has                     scan.go
//	read     the text of one, within bounds               file.go
//	split    its documents, each as JSON                  split.go, document.go, duplicates.go; faults of syntax: syntax.go
//	walk     the objects of a document, Lists opened      parts.go
//	decode   an object, strictly or as API clients do     strict.go, client.go
//	locate   the line of a field                          line.go
package manifest
