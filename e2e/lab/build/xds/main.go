// Command xds has independent implementations of xDS that check what the proxy serves. `xds validate` validates
// responses with Envoy's own types, `xds bootstrap` validates an Envoy configuration, and `xds client` runs clients
// that connect with grpc-go. For benchmarks `xds streams` opens many streams, and `xds cache` is go-control-plane's own
// server. In pods `xds serve` answers calls, and `xds call` makes them.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// roles are the program's subcommands. Each reads standard input to its end.
var roles = map[string]func(io.Reader, io.Writer) error{
	"validate": validateAll, "client": dialAll, "streams": watchAll, "cache": serveCache, "serve": serveCalls, "call": repeatCalls,
	"bootstrap": validateBootstrap,
}

func main() {
	role := roles[os.Args[len(os.Args)-1]]
	err := errors.New("want one argument: validate, client, bootstrap, streams, cache, serve or call")
	if role != nil {
		err = role(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
