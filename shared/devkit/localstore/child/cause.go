package child

import (
	"regexp"
	"strings"
)

// failure finds words that name a cause.
var failure = regexp.MustCompile(
	`(?i)\b(error|fatal|panic|failed|failure|denied|refused|cannot|could not|can't|unable|no space left)\b`,
)

// namesFailure says whether a line names a failure of the program. A line of a service's log says so by its level; one
// about a request is about that request alone.
func namesFailure(line string) bool {
	if strings.HasPrefix(line, "{") {
		return strings.Contains(line, `"level":"ERROR"`) && !strings.Contains(line, `"msg":"request"`)
	}
	return failure.MatchString(line)
}

// lastLines is how many lines of the output are about the end. What failed long before did not end the program.
const lastLines = 20

// Cause returns the line of a failed program's output that says why it failed: of the last lines, the first that names
// a failure. What follows it is often about clearing up. Without such a line it returns the last one.
func Cause(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for _, line := range lines[max(0, len(lines)-lastLines):] {
		if namesFailure(line) {
			return strings.TrimSpace(line)
		}
	}
	return lastLine(output)
}

func lastLine(output string) string {
	text := strings.TrimSpace(output)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
