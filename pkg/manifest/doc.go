// Package manifest reads the Kubernetes objects in YAML and JSON files with one or more documents, including Lists.
//
// Errors are returned as values along with the valid objects, each about the smallest part that it affects. The meaning
// of an object is up to the caller.
//
//	scan     list the files of a folder                    scan.go
//	read     read a file, up to a limit                    file.go
//	split    split it into documents, each as JSON         split.go, document.go, duplicates.go; syntax errors: syntax.go
//	walk     yield the objects of a document and of Lists  parts.go; large Lists: items.go
//	decode   decode an object, strictly or as API clients  strict.go; which unknown fields are ignored: client.go
//	locate   find the line of a field                      line.go
package manifest
