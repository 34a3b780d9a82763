// Package explain turns decisions into a story: which endpoints each Service port uses on a node, why, and which ones
// were left out. A person reads it as text, a machine as JSON or YAML.
//
// It decides nothing itself: package selection decides everything that it prints, so its output cannot differ from what
// is programmed.
package explain
