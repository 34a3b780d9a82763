package cli_test

import (
	"context"
	"errors"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func TestRunAllCancelsOthersOnError(t *testing.T) {
	failure := errors.New("the address is gone")
	waited := make(chan struct{}, 2)
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		waited <- struct{}{}
		return nil
	}
	err := cli.RunAll(t.Context(), wait, func(context.Context) error { return failure }, wait)
	if !errors.Is(err, failure) {
		t.Errorf("got error %v, want %v", err, failure)
	}
	if len(waited) != 2 {
		t.Errorf("RunAll waited for %d of the other 2 tasks", len(waited))
	}
}
