package main

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/xds"
)

// xdsFlags configure where xDS is served to gRPC clients and Envoys.
type xdsFlags struct {
	bindAddress string
	// addresses are the addresses of the xDS server, after Validate; empty means no server.
	addresses []string
}

func (f *xdsFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.bindAddress, "xds-bind-address", "",
		"`ADDRESSES` that serve xDS, so that gRPC clients and Envoys on this node choose the endpoints that its kernel would, and fail over to "+
			"the next tier themselves: IP:PORT, such as 0.0.0.0:18000, or unix:// and the path of a socket, or both with a comma (default: none)")
}

// Validate requires addresses that no other server uses.
func (f *xdsFlags) Validate(taken ...string) error {
	f.addresses = nil
	if f.bindAddress == "" {
		return nil
	}
	var errs []error
	for address := range strings.SplitSeq(f.bindAddress, ",") {
		path, isSocket := strings.CutPrefix(address, xds.SocketPrefix)
		parsed, err := netip.ParseAddrPort(address)
		switch {
		case isSocket && !filepath.IsAbs(path):
			errs = append(errs, fmt.Errorf("--xds-bind-address %q: a socket's path must begin with a slash, as in unix:///run/vicinity/xds.sock",
				address))
		case !isSocket && err != nil:
			errs = append(errs, fmt.Errorf("--xds-bind-address %q is neither IP:PORT, such as 0.0.0.0:18000, nor unix:// and a path", address))
		case !isSocket && parsed.Port() != 0 && slices.Contains(taken, address), slices.Contains(f.addresses, address):
			errs = append(errs, fmt.Errorf("--xds-bind-address %s is the address of another server: each needs its own", address))
		default:
			f.addresses = append(f.addresses, address)
		}
	}
	return errors.Join(errs...)
}
