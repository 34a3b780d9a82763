// Package certificates_test runs replicas that create, renew and serve their certificate with package certs, and a real
// API server that calls them.
package certificates_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/site"
)

// api is the control plane that all tests share.
var api *site.Site

func TestMain(m *testing.M) { site.Main(m, &api) }
