// Command webhook checks the topology settings of Services and Namespaces: as an admission webhook in a cluster, or in
// files before they are applied. The commands are in files of their names, and the flags of run in flags_run.go.
package main

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func main() { cli.Main(context.Background(), newRoot()) }
