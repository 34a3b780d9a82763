package main

import (
	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func newRoot() *cobra.Command {
	return cli.Root("proxy", "Send connections to Kubernetes Services to the nearest endpoint that their owners allow",
		`Vicinity's service proxy. It runs once on every node and programs nftables, so that a connection to a
Service reaches the nearest endpoint that the Service's owner allows.

To see what it would do, neither a cluster nor root is needed, only Services, EndpointSlices and Nodes
as 'kubectl get -o yaml' prints them, in a folder, in a file, or on standard input:

  kubectl get services,endpointslices,nodes -A -o yaml > all.yaml
  proxy explain --manifests all.yaml --node node-a1

Kubernetes 1.33 and later has ServiceCIDRs, too: 'kubectl get servicecidrs -o yaml > servicecidrs.yaml', in a folder
with the others.`,
		newRun(), newRender(), newExplain(&explainFlags{}), newForecast(), newFlows(), newStatus(false), newCleanup(),
		cli.NewVersion("proxy", thisBuild()),
	)
}

// version is set in release builds: -ldflags "-X main.version=v1.2.3".
var version string

func thisBuild() cli.Build { return cli.BuildOf(version) }
