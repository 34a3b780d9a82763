//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

const (
	// keptBuffer is how much of the memory of a batch is kept for the next one.
	keptBuffer = 1 << 20
	// shownFailures is how many failures of a batch an error lists.
	shownFailures = 3
)

// Commit puts a batch into the kernel in one transaction: whole, or if an error is returned, not at all. The exception is
// ErrUnknownOutcome. An empty batch does nothing.
//
// A refused batch gives a *BatchError, or an *OwnedError if a table belongs to another process; errors.Is finds the kernel's
// unix.Errno in both.
func (c *Conn) Commit(ctx context.Context, batch ruleset.Batch) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	encoded, err := c.encode(batch, c.buffer)
	if err != nil {
		return err
	}
	if cap(encoded.bytes) <= keptBuffer {
		c.buffer = encoded.bytes
	}
	return c.send(ctx, encoded)
}

// Encode returns the bytes that Commit would send for a batch.
func (c *Conn) Encode(batch ruleset.Batch) (*Encoded, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.encode(batch, nil)
}

// Send sends a batch that was encoded before. It does what Commit does.
func (c *Conn) Send(ctx context.Context, encoded *Encoded) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.send(ctx, encoded)
}

func (c *Conn) encode(batch ruleset.Batch, buffer []byte) (*Encoded, error) {
	encoded, err := encode(batch, c.owned, c.sequence, buffer)
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
		return fmt.Errorf("committing a batch: %w", err)
	}
	if c.watcher != nil && encoded.elements > quietElements {
		return c.quietly(ctx, func() error { return c.exchange(ctx, encoded) })
	}
	return c.exchange(ctx, encoded)
}

func (c *Conn) exchange(ctx context.Context, encoded *Encoded) error {
	if err := c.writer.send(encoded.bytes); err != nil {
		return fmt.Errorf("committing a batch: %w", err)
	}
	failures, err := c.writer.outcome(ctx, encoded.first, encoded.last)
	if err != nil {
		return fmt.Errorf("committing a batch: %w", err)
	}
	if len(failures) == 0 {
		return nil
	}
	return c.refusal(ctx, encoded, failures)
}

// refusal makes an error of failures.
func (c *Conn) refusal(ctx context.Context, encoded *Encoded, failures []failure) error {
	refused := &BatchError{More: max(0, len(failures)-shownFailures)}
	for _, failure := range failures[:len(failures)-refused.More] {
		op, position, ok := encoded.operationOf(failure.sequence)
		if !ok {
			refused.Failures = append(refused.Failures, explain("committing the batch", failure))
			continue
		}
		if errors.Is(failure.errno, unix.EPERM) {
			if owned := c.ownedByOther(ctx, op.Family); owned != nil {
				return owned
			}
		}
		refused.Failures = append(refused.Failures, explain(encoded.describe(op, position, failure), failure))
	}
	return refused
}

// explain makes an error of a failure.
func explain(operation string, failure failure) error {
	switch {
	case errors.Is(failure.errno, unix.EPERM):
		return fmt.Errorf("%s: %w: %w", operation, errPrivilege, failure.errno)
	case failure.text != "":
		return fmt.Errorf("%s: %s: %w", operation, failure.text, failure.errno)
	}
	return fmt.Errorf("%s: %w", operation, failure.errno)
}

// describe says which operation failed, down to the element if the kernel points at it.
func (e *Encoded) describe(op ruleset.Op, position int, failure failure) string {
	object, ok := op.Object.(ruleset.ElementsObject)
	if !ok {
		return describePart(op, position, "")
	}
	for m, err := range parseMessages(e.bytes) {
		if err == nil && m.sequence == failure.sequence {
			return describePart(op, position, elementAt(m, failure.offset, op, object.Set))
		}
	}
	return describePart(op, position, "")
}

// elementAt names the element that lies at an offset in a message. Without an offset it is the first, if there is no other.
func elementAt(m message, offset uint32, op ruleset.Op, set ruleset.Set) string {
	_, body := m.family()
	list := attribute(body, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	// The list is the message's last attribute.
	end := headerSize + len(m.body)
	at := end - len(list)
	for _, element := range attributes(list) {
		size := align(attributeSize + len(element))
		alone := offset == 0 && at+size == end && size == len(list)
		if offset >= uint32(at) && offset < uint32(at+size) || alone {
			key, err := parseKey(element, op.Family, set)
			if err != nil {
				return ""
			}
			return key.Text(set.Key)
		}
		at += size
	}
	return ""
}
