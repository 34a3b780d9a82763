package main

import "github.com/vicinity-proxy/vicinity/pkg/cli"

// version is set in release builds: -ldflags "-X main.version=v1.2.3".
var version string

func thisBuild() cli.Build { return cli.BuildOf(version) }
