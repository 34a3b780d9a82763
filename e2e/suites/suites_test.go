//go:build e2e

// Package suites proves Vicinity's promises in a running cluster, one file for each. All it is given is a kubeconfig:
// it starts probe pods, has them dial Services, and asks who answered. So it runs in the lab, in kind, and in a
// cluster of yours.
//
// The script run beside this file starts them. They need three zones with a node each, one IP family or both, DNS, and
// a Vicinity that serves Services without a service-proxy-name label. Specs labelled six-nodes need two nodes in each
// zone; leave them out with LABEL_FILTER='!six-nodes' where there are fewer. Specs labelled webhook need the admission
// webhook, as manifests/webhook installs it; '!webhook' leaves them out. Specs labelled node-power need commands that stop
// nodes and start them. Specs labelled thorough take long, and "make e2e" leaves them out. Specs labelled node-dns need a
// DNS cache on each node that asks the proxy first, those labelled topology-slices a webhook that publishes
// TopologySlices, and those labelled measured-demand one that measures demand. Specs that disturb others, because they
// restart the proxy or the webhook, label a node's zone anew or evacuate a zone, are Serial. After the last spec no proxy
// may have taken a node for dead that no spec had stopped.
package suites

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	// waitTimeout is how long anything may take to come true. It only decides how late a failure is reported.
	waitTimeout = 2 * time.Minute
	// glance is the time between two checks whether it did.
	glance = 200 * time.Millisecond
)

// Specs that take a minute or more run before others, so that none of them is alone at the end.
const (
	long         = SpecPriority(1)
	longestFirst = SpecPriority(2)
)

func TestVicinityInACluster(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(waitTimeout)
	SetDefaultEventuallyPollingInterval(glance)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Vicinity in a cluster")
}

// What all specs share. It does not change after the suite has begun.
var (
	kube cluster
	// podClients and nodeClients are one probe on each node, in the order of kube.nodes: a pod, and one in the node's own
	// network.
	podClients, nodeClients probes
)

// everyClient is all of both.
func everyClient() probes { return slices.Concat(podClients, nodeClients) }

// The clients are made once, by the first process, for all processes.
var _ = SynchronizedBeforeSuite(func(ctx SpecContext) []byte {
	kube = connect(ctx)
	kube.expectVicinity(ctx)
	namespace := kube.makeNamespace(ctx, "vicinity-clients-")
	DeferCleanup(kube.deleteNamespace, namespace)
	followed = kube.followEjections()
	kube.startClients(ctx, namespace)
	return []byte(namespace)
}, func(ctx SpecContext, namespace []byte) {
	kube = connect(ctx)
	podClients, nodeClients = kube.clients(ctx, string(namespace))
})

// The first process is the last one, too.
var _ = SynchronizedAfterSuite(func() {}, expectOnlyDeadNodesEjected)
