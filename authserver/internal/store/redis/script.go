package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// marking lets a script say after its answer which question it is the answer to.
const marking = "local function answer()\n%s\nend\nreturn answer() .. ' ' .. ARGV[#ARGV]\n"

func newScript(source string) *goredis.Script {
	return goredis.NewScript(fmt.Sprintf(marking, source))
}

// ask runs a script by its hash, and by its source where Redis does not know it yet. Each question has a mark of its own, because the same
// script is asked about the same grant many times. An answer without it belongs to somebody else: no connection of this time is used
// again, since nobody knows which of them are out of step, and the answer counts as lost. reached says whether Redis may have got the question.
func ask(ctx context.Context, rdb goredis.UniversalClient, script *goredis.Script, key string, args ...any) (answer string, reached bool, err error) {
	mark := strconv.FormatUint(rand.Uint64(), 36)
	ctx, question := witnessed(ctx)
	value, err := script.Run(ctx, rdb, []string{key}, append(args, mark)...).Result()
	if err != nil && !errors.Is(err, goredis.Nil) { // no script of ours answers nil
		return "", !neverSent(err) || question.doubt.Load(), err
	}
	text, _ := value.(string)
	answer, ours := strings.CutSuffix(text, " "+mark)
	if !ours {
		question.outOfStep()
		return "", true, errOutOfStep
	}
	return answer, true, nil
}
