// Package installation_test runs the webhook as its manifests install it, called by a real API server. It covers every
// case of the rules, the ways to write an object, changes of files, outages, and restarts under load. It needs root.
package installation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
)

// The manifests and their overlays, unchanged.
const (
	manifests        = "../../../manifests/webhook"
	enforce          = manifests + "/enforce"
	defaultOnUpdate  = manifests + "/default-on-update"
	certificateFiles = manifests + "/certificate-files"
)

// testbed is a cluster for the webhook: a control plane on a node, with pods for replicas. All tests share it, one
// after the other, because a webhook configuration affects the whole cluster.
//
// No controllers run in it; installation does what they and kubelet would do for the webhook.
type testbed struct {
	*site.Site
	network *fabric.Fabric
	node    *fabric.Node
	pods    []*fabric.Pod
}

var shared *testbed

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	shared = &testbed{}
	if shared.network, err = fabric.New(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, shared.network.Close()) }()
	if shared.node, err = shared.network.AddNode("control-plane"); err != nil {
		return 0, err
	}
	shared.Site, err = site.Open(context.Background(), site.Config{
		Namespace: shared.node.Namespace, Audit: auditPolicy,
		// The API server uses the EndpointSlices to call a Service, because there is no service proxy here.
		Flags: []string{"--enable-aggregator-routing"},
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, shared.Close()) }()
	return m.Run(), nil
}

// auditPolicy makes the API server log the webhook's requests, and requests for Services and Namespaces.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["` + accountUser + `"]}
- {level: Metadata, verbs: [create, update, patch], resources: [{group: "", resources: [services, namespaces]}]}
- {level: None}
`
