// Command webhook judges the topology settings of Services and Namespaces: as an admission webhook of a cluster, or in
// files before they are applied.
package main

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func main() { cli.Main(context.Background(), newRoot()) }
