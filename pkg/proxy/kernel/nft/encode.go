//go:build linux

package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Encoded is a batch as the bytes that are sent to the kernel. It may be sent more than once.
type Encoded struct {
	ops    []ruleset.Op
	starts []uint32 // for each operation the sequence number of its first message, or the next operation's if it has none
	first  uint32   // sequence number of the batch's opening message
	last   uint32   // of the last message between opening and end: the only one that is acknowledged

	singly bool // each element has a message of its own

	bytes    []byte
	elements int
}

// Size returns the number of bytes that are sent to the kernel; zero if the batch does nothing.
func (e *Encoded) Size() int { return len(e.bytes) }

// encoder converts operations into messages.
type encoder struct {
	messages
	owned    bool   // whether tables are added with the flags of an owner
	singly   bool   // whether each element gets a message of its own
	sets     uint32 // how many sets were added, each of which needs a number of its own within the batch
	elements int
}

// weightSize is the number of bytes to allocate for each unit of a batch's weight. Batches need 22 with ClusterIPs
// alone, 24 in a mix, a few more if names are long.
const weightSize = 26

// encode converts a batch into messages: one frame, and in it the operations in their order, with as many elements in a
// message as fit or, singly, with one. It takes over the buffer.
func encode(batch ruleset.Batch, owned bool, sequence uint32, buffer []byte, singly bool) (*Encoded, error) {
	buffer = slices.Grow(buffer[:0], weightSize*batch.Weight)
	e := &encoder{messages: messages{b: buffer, sequence: sequence}, owned: owned, singly: singly}
	encoded := &Encoded{ops: batch.Ops, starts: make([]uint32, len(batch.Ops)), first: sequence, singly: singly}
	e.frame(unix.NFNL_MSG_BATCH_BEGIN)
	for i, op := range batch.Ops {
		encoded.starts[i] = e.sequence
		if err := e.operation(op); err != nil {
			return nil, fmt.Errorf("%s: %w", describe(op), err)
		}
	}
	encoded.last = e.sequence - 1
	if encoded.last == encoded.first {
		return encoded, nil
	}
	// One acknowledgement for the whole batch, because one for each message would overflow the receive buffer. The last
	// operation requests it, because kernels before 6.10 do not acknowledge the end of a batch.
	e.addFlags(unix.NLM_F_ACK)
	e.frame(unix.NFNL_MSG_BATCH_END)
	encoded.bytes, encoded.elements = e.b, e.elements
	return encoded, nil
}

func (e *encoder) frame(kind uint16) {
	e.begin(kind, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	e.end()
}

func (e *encoder) operation(op ruleset.Op) error {
	e.tableName = op.Table
	switch object := op.Object.(type) {
	case ruleset.TableObject:
		return e.tableOp(op)
	case ruleset.CounterObject:
		return e.counterOp(op, object.Name)
	case ruleset.SetObject:
		return e.setOp(op, object.Set)
	case ruleset.ChainObject:
		return e.chainOp(op, object.Chain)
	case ruleset.RulesObject:
		return e.rulesOp(op, object.Chain)
	case ruleset.ElementsObject:
		return e.elementsOp(op, object)
	}
	return errNoSuchOperation
}

// operationOf returns the index of the operation to which a message belongs, and the message's position in it.
func (e *Encoded) operationOf(sequence uint32) (index, position int, ok bool) {
	// The subtractions keep the order when the numbers wrap around.
	offset := sequence - e.first
	if offset == 0 || offset > e.last-e.first {
		return 0, 0, false
	}
	after, _ := slices.BinarySearchFunc(e.starts, offset, func(start, offset uint32) int {
		if start-e.first <= offset {
			return -1
		}
		return 1
	})
	return after - 1, int(sequence - e.starts[after-1]), true
}
