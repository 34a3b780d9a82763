// Package cli holds what the command lines of all programs share: exit statuses and how errors are reported (run.go),
// --help and errors about flags (root.go), the version command, the log, and escaping of standard output and error
// (escape.go).
package cli
