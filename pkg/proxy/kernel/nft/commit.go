//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// maxKeptBuffer is the maximum size of a batch whose buffer is kept for the next one.
const maxKeptBuffer = 1 << 20

// Commit commits a batch in one transaction: completely, or if an error is returned, not at all. The exception is
// ErrUnknownOutcome. An empty batch does nothing.
//
// The error of a rejected batch is a *ruleset.RejectedError that names each rejected element, or a *TableOwnedError if
// a table belongs to another process; errors.Is finds the kernel's unix.Errno in both.
func (c *Conn) Commit(ctx context.Context, batch ruleset.Batch) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	encoded, err := c.encode(batch, c.buffer, false)
	if err != nil {
		return err
	}
	if cap(encoded.bytes) <= maxKeptBuffer {
		c.buffer = encoded.bytes
	}
	err = c.send(ctx, encoded)
	if rejected, ok := errors.AsType[*ruleset.RejectedError](err); ok && lacksElement(rejected) {
		return c.commitSingly(ctx, batch, err)
	}
	return err
}

// commitSingly sends a rejected batch again, with one message for each element: the kernel reports every message that
// it rejects, but at most the first rejected element of a message, and none before Linux 6.0. It costs a multiple of
// the batch, but only after a rejection.
func (c *Conn) commitSingly(ctx context.Context, batch ruleset.Batch, firstErr error) error {
	encoded, err := c.encode(batch, nil, true)
	if err != nil {
		return err
	}
	err = c.send(ctx, encoded)
	if _, ok := errors.AsType[*ruleset.RejectedError](err); err == nil || ok {
		return err
	}
	return firstErr // there was no room for the replies, because so many elements were rejected
}

// lacksElement reports whether the kernel did not report which elements it rejected.
func lacksElement(rejected *ruleset.RejectedError) bool {
	return slices.ContainsFunc(rejected.Rejections, func(rejection ruleset.Rejection) bool {
		_, isElements := rejection.Op.Object.(ruleset.ElementsObject)
		return isElements && rejection.Element == nil
	})
}

// Encode returns the bytes that Commit would send for a batch.
func (c *Conn) Encode(batch ruleset.Batch) (*Encoded, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.encode(batch, nil, false)
}

// Send sends a batch that was encoded before, as Commit does, but does not send a rejected one again.
func (c *Conn) Send(ctx context.Context, encoded *Encoded) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.send(ctx, encoded)
}

func (c *Conn) encode(batch ruleset.Batch, buffer []byte, singly bool) (*Encoded, error) {
	encoded, err := encode(batch, c.owned, c.sequence, buffer, singly)
	if err != nil {
		return nil, err
	}
	c.sequence = encoded.last + 2 // one for the end of the batch
	return encoded, nil
}

func (c *Conn) send(ctx context.Context, encoded *Encoded) error {
	if encoded.Size() == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit batch: %w", err)
	}
	if c.watcher != nil && encoded.elements > minUnobserved {
		return c.sendUnobserved(ctx, func() error { return c.exchange(ctx, encoded) })
	}
	return c.exchange(ctx, encoded)
}

func (c *Conn) exchange(ctx context.Context, encoded *Encoded) error {
	if err := c.writer.send(encoded.bytes); err != nil {
		return fmt.Errorf("commit batch: %w", err)
	}
	failures, err := c.writer.outcome(ctx, encoded.first, encoded.last)
	if err != nil {
		return fmt.Errorf("commit batch: %w", err)
	}
	if len(failures) == 0 {
		return nil
	}
	return c.rejection(ctx, encoded, failures)
}

// rejection returns the error for failures, which are in the order of their messages.
func (c *Conn) rejection(ctx context.Context, encoded *Encoded, failures []failure) error {
	rejected := &ruleset.RejectedError{Rejections: make([]ruleset.Rejection, len(failures))}
	elements := encoded.elementsOf(failures)
	for i, f := range failures {
		opIndex, position, ok := encoded.operationOf(f.sequence)
		if !ok {
			rejected.Rejections[i].Err = explain("commit batch", f)
			continue
		}
		op := encoded.ops[opIndex]
		if errors.Is(f.errno, unix.EPERM) {
			if owned := c.ownedByOther(ctx, op.Family); owned != nil {
				return owned
			}
		}
		rejected.Rejections[i] = ruleset.Rejection{
			Op: op, Element: elements[i], Err: explain(describeMessage(op, position, elements[i]), f),
		}
	}
	return rejected
}

// explain returns the error for a failure.
func explain(operation string, f failure) error {
	switch {
	case errors.Is(f.errno, unix.EPERM):
		return fmt.Errorf("%s: %w: %w", operation, errPrivilege, f.errno)
	case f.text != "":
		return fmt.Errorf("%s: %s: %w", operation, f.text, f.errno)
	}
	return fmt.Errorf("%s: %w", operation, f.errno)
}

// elementsOf returns the element of each failed message, if each element has a message of its own; nil for messages
// about other objects. It walks each operation once, even if several of its elements failed.
func (e *Encoded) elementsOf(failures []failure) []*ruleset.Element {
	found := make([]*ruleset.Element, len(failures))
	if !e.singly {
		return found
	}
	indexOf := make(map[uint32]int, len(failures))
	for i, f := range failures {
		indexOf[f.sequence] = i
	}
	lastOpIndex := -1
	for _, f := range failures {
		opIndex, _, ok := e.operationOf(f.sequence)
		if !ok || opIndex == lastOpIndex {
			continue
		}
		lastOpIndex = opIndex
		object, isElements := e.ops[opIndex].Object.(ruleset.ElementsObject)
		if !isElements {
			continue
		}
		sequence := e.starts[opIndex]
		for element := range object.Elements {
			if i, failed := indexOf[sequence]; failed {
				found[i] = new(element)
			}
			sequence++
		}
	}
	return found
}
