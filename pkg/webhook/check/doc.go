// Package check applies the webhook's rules to the Services and Namespaces in files.
//
// To change which files are skipped, start in context.go, kustomization.go and exclude.go; for patches, in patches.go.
package check
