//go:build e2e

// Package suites verifies Vicinity's guarantees in a running cluster, one file for each. Its only input is a
// kubeconfig: it starts test pods, makes them dial Services, and checks which servers reply. So it runs in the lab, in
// kind, and in any other cluster.
//
// The script next to this file starts the suites. They need three zones with a node each, one IP family or both, DNS,
// and a Vicinity that serves Services without a service-proxy-name label. Some specs need more, and have a label by
// which LABEL_FILTER can exclude them, such as LABEL_FILTER='!six-nodes':
//
//   - six-nodes: two nodes in each zone;
//   - webhook: the admission webhook, installed from manifests/webhook;
//   - node-power: commands that stop and start nodes;
//   - thorough: much time, so "make e2e" excludes these specs;
//   - node-dns: a DNS cache on each node that queries the proxy first;
//   - topology-slices: a webhook that publishes TopologySlices;
//   - measured-demand: a webhook that measures demand.
//
// Specs that disturb others are Serial: they restart the proxy or the webhook, change the zone label of a node or
// evacuate a zone. After the last spec, no proxy may have ejected a node that no spec had stopped.
package suites

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	// waitTimeout is the timeout of an expectation. It only determines how late a failure is reported.
	waitTimeout = 2 * time.Minute
	// pollInterval is the polling interval of an expectation.
	pollInterval = 200 * time.Millisecond
)

// Specs that take a minute or more run before others, so that none of them runs alone at the end.
const (
	long         = SpecPriority(1)
	longestFirst = SpecPriority(2)
)

func TestVicinityInACluster(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(waitTimeout)
	SetDefaultEventuallyPollingInterval(pollInterval)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Vicinity in a cluster")
}

// The state that all specs share. It does not change after the suite has started, except for the clients on restarted
// nodes.
var (
	kube cluster
	// podClients and nodeClients are one pod on each node, in the order of kube.nodes. Those of nodeClients use host
	// networking.
	podClients, nodeClients testPods
)

// everyClient returns podClients and nodeClients.
func everyClient() testPods { return slices.Concat(podClients, nodeClients) }

// The first process creates the clients once, for all processes.
var _ = SynchronizedBeforeSuite(func(ctx SpecContext) []byte {
	kube = connect(ctx)
	kube.expectVicinity(ctx)
	namespace := kube.makeNamespace(ctx, "vicinity-clients-")
	DeferCleanup(kube.deleteNamespace, namespace)
	collectedEjections = kube.collectEjections()
	kube.startClients(ctx, namespace)
	return []byte(namespace)
}, func(ctx SpecContext, namespace []byte) {
	kube = connect(ctx)
	podClients, nodeClients = kube.clients(ctx, string(namespace))
})

// The first process is also the last one to finish.
var _ = SynchronizedAfterSuite(func() {}, expectOnlyDeadNodesEjected)
