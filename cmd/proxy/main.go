// Command proxy is Vicinity's service proxy. It runs once on every node and sends each connection to a Service to the
// nearest endpoint that the Service's owner allows.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func main() {
	root := newRoot()
	if filepath.Base(os.Args[0]) == pluginName {
		root = newPlugin()
	}
	cli.Main(context.Background(), root)
}
