package mcp

import (
	"context"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/almonerhq/almoner/shared/standing"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// maxAnswers bounds the answers of several messages together, in bytes of text. One message alone is answered in full,
// as by the REST route; ten in one request would hold ten of the longest pages in memory at once, in each of their
// spellings.
const maxAnswers = 1 << 20

const tooLong = "The answers of this batch are too long to be sent together: send this call alone."

// A batch is the calls of one request, in their order, those that are spelled alike as one.
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

// ask is how one of the calls reads what it needs in the same trip as the standing, nil where none does: the only one,
// or else the first that has no other way.
func (b *batch) ask() func(context.Context, standing.Query) (standing.Standing, error) {
	for _, c := range b.calls {
		if c.travels || b.messages == 1 {
			return c.ask
		}
	}
	return nil
}

// searches says whether one of the calls searches.
func (b *batch) searches() bool {
	return slices.ContainsFunc(b.calls, func(c counted) bool { return c.searches })
}

// answer answers the calls as long as there is room, and reads nothing for the others.
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
