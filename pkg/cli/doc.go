// Package cli has what the command lines of all our programs share: how mistakes are reported, which exit statuses
// there are, what --help and version print, how the log is written.
package cli
