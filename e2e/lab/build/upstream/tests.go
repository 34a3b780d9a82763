//go:build tests

// Package upstream lets go.mod know what Kubernetes' tests import: they are built as a test binary, which no tool
// directive can name.
package upstream

import _ "k8s.io/kubernetes/test/e2e"
