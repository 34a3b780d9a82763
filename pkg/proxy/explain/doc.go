// Package explain turns decisions into a story: which endpoints each Service port uses on a node, why, and which ones
// were left out. A person reads it as text, a machine as JSON or YAML.
//
// It decides nothing itself. Whatever it prints was decided by package selection, so that what it says and what is
// programmed cannot differ.
package explain
