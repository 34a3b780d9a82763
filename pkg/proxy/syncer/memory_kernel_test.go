package syncer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// memoryKernel is a kernel in memory.
type memoryKernel struct {
	ruleset.Tables
	batches []ruleset.Batch
	// numbers are those of session affinity that are found although there is no table, so that a start with empty tables
	// can be compared.
	numbers map[model.Family]map[string][]ruleset.Element
}

// numbersIn returns the numbers of session affinity in a kernel.
func numbersIn(kernel *memoryKernel) map[model.Family]map[string][]ruleset.Element {
	numbers := map[model.Family]map[string][]ruleset.Element{}
	for _, family := range model.Families {
		numbers[family] = kernel.Tables.Objects(family).Contents
	}
	return numbers
}

func (k *memoryKernel) Commit(_ context.Context, batch ruleset.Batch) error {
	if err := k.Apply(batch); err != nil {
		return err
	}
	if len(batch.Ops) > 0 {
		k.batches = append(k.batches, batch)
	}
	return nil
}

func (k *memoryKernel) Objects(_ context.Context, family model.Family) (ruleset.Objects, error) {
	objects := k.Tables.Objects(family)
	if !objects.Table {
		objects.Contents = k.numbers[family]
	}
	return objects, nil
}

// text returns the tables in nft's format.
func (k *memoryKernel) text(t testing.TB) string {
	var text strings.Builder
	if err := k.Print(&text); err != nil {
		t.Fatalf("print the tables: %v", err)
	}
	return text.String()
}

// errInjected is the error of commits that are made to fail.
var errInjected = errors.New("injected failure")

// faultyKernel fails some commits: before they are applied, or after, when the caller cannot tell.
type faultyKernel struct {
	*memoryKernel
	fails func() (before, after bool)
}

func (k *faultyKernel) Commit(ctx context.Context, batch ruleset.Batch) error {
	before, after := k.fails()
	if before {
		return errInjected
	}
	if err := k.memoryKernel.Commit(ctx, batch); err != nil {
		return err
	}
	if after {
		return errInjected
	}
	return nil
}
