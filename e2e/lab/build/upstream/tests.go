//go:build tests

// Package upstream makes go.mod list what Kubernetes' tests import: they are built as a test binary, which a tool
// directive cannot name.
package upstream

import _ "k8s.io/kubernetes/test/e2e"
