package cli

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Together runs all parts of a program, each in a goroutine, until all have ended. The first that fails ends the others, and its error
// is returned.
func Together(ctx context.Context, parts ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}
