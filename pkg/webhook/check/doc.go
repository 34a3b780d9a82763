// Package check judges the Services and Namespaces of files by the webhook's rules.
package check
