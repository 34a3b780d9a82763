package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// An API server has a new version after an upgrade. No watch reports that, so it is asked again and again.
const (
	versionInterval = time.Minute
	firstInterval   = time.Second // until the version is known
	versionTimeout  = 10 * time.Second
)

// FollowVersion asks an API server for its version now and then, until the context ends. What was known stays known
// while it does not answer.
func (f *Cache) FollowVersion(ctx context.Context, config *rest.Config, log *slog.Logger) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("prepare to ask for the version of Kubernetes: %w", err)
	}
	logged := ""
	for {
		found, err := fetchVersion(ctx, client.RESTClient())
		switch {
		case err == nil:
			logged = ""
			f.version.Store(found)
		case err.Error() != logged && ctx.Err() == nil: // once, and not with every question
			logged = err.Error()
			f.warn(log, err)
		}
		interval := versionInterval
		if f.Version() == nil {
			interval = firstInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

func (f *Cache) warn(log *slog.Logger, err error) {
	if known := f.Version(); known != nil {
		log.Warn("could not read the version of Kubernetes; assuming the last known one", "known", known.String(), "error", err)
		return
	}
	log.Warn("could not read the version of Kubernetes; Services get no default trafficDistribution until it is known", "error", err)
}

func fetchVersion(ctx context.Context, api rest.Interface) (*version.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	text, err := api.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the version of Kubernetes: %w", err)
	}
	var response apiversion.Info
	if err := json.Unmarshal(text, &response); err != nil {
		return nil, fmt.Errorf("read the version of Kubernetes: %w", err)
	}
	found, err := supportedVersion(response)
	if err != nil {
		return nil, fmt.Errorf("read the version of Kubernetes: %w", err)
	}
	return found, nil
}

// supportedVersion is the version as which an API server behaves: during an upgrade it may emulate an older one, and then
// refuses what that one did not know (KEP-4330).
func supportedVersion(response apiversion.Info) (*version.Version, error) {
	if response.EmulationMajor != "" && response.EmulationMinor != "" {
		return version.ParseGeneric(response.EmulationMajor + "." + response.EmulationMinor)
	}
	return version.ParseGeneric(response.GitVersion) // vendors append words to the numbers
}

// Version returns the version as which the API server behaves; nil as long as it is not known.
func (f *Cache) Version() *version.Version { return f.version.Load() }
