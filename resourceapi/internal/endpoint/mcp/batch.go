package mcp

import (
	"context"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/almonerhq/almoner/shared/standing"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// maxAnswers bounds the total text, in bytes, of the answers to several messages. A single message is answered in
// full, as on the REST route; ten in one request could hold ten pages of maximum length in memory at once, each in
// several encodings.
const maxAnswers = 1 << 20

const tooLong = "The results of this batch are too large to return together. Send this call separately."

// A batch is the calls of one request in order. Identical calls are merged.
type batch struct {
	messages int
	calls    []counted
}

type counted struct {
	call
	key   string
	times int
}

func (b *batch) add(key string, prepare func() call) {
	for i := range b.calls {
		if b.calls[i].key == key {
			b.calls[i].times++
			return
		}
	}
	b.calls = append(b.calls, counted{prepare(), key, 1})
}

// readStanding returns the function of one call that reads its data in the round trip of the standing: the only call
// or, in a batch, the first that cannot read it otherwise. It returns nil if there is none.
func (b *batch) readStanding() func(context.Context, standing.Query) (standing.Standing, error) {
	for _, c := range b.calls {
		if c.needsRead || b.messages == 1 {
			return c.readStanding
		}
	}
	return nil
}

// searches reports whether one of the calls searches.
func (b *batch) searches() bool {
	return slices.ContainsFunc(b.calls, func(c counted) bool { return c.searches })
}

// answer answers the calls until maxAnswers is reached; the remaining ones get an error and read nothing.
func (b *batch) answer(ctx context.Context, caller gate.Caller) (answers, error) {
	given, length := answers{}, 0
	for _, c := range b.calls {
		if length > maxAnswers {
			given[c.key] = failed(tooLong)
			continue
		}
		result, err := c.answer(ctx, caller)
		if err != nil {
			return nil, err
		}
		if length += c.times * lengthOf(result); length > maxAnswers && b.messages > 1 {
			result = failed(tooLong)
		}
		given[c.key] = result
	}
	return given, nil
}

func lengthOf(result *sdk.CallToolResult) int {
	length := 0
	for _, part := range result.Content {
		if text, ok := part.(*sdk.TextContent); ok {
			length += len(text.Text)
		}
	}
	return length
}
