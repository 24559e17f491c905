package child

import (
	"regexp"
	"strings"
)

// failure matches words that name a cause.
var failure = regexp.MustCompile(
	`(?i)\b(error|fatal|panic|failed|failure|denied|refused|cannot|could not|can't|unable|no space left)\b`,
)

// namesFailure reports whether a line names a failure of the program. A line of a service's log does so by
// its level; a line about a request concerns that request only.
func namesFailure(line string) bool {
	if strings.HasPrefix(line, "{") {
		return strings.Contains(line, `"level":"ERROR"`) && !strings.Contains(line, `"msg":"request"`)
	}
	return failure.MatchString(line)
}

// lastLines is how many lines of the output concern the end. An earlier failure did not end the program.
const lastLines = 20

// Cause returns the line of a failed program's output that says why it failed: the first of the last lines
// that names a failure. The lines after it are often about cleaning up. If there is no such line, it returns
// the last one.
func Cause(output string) string {
	if line := failureIn(output); line != "" {
		return line
	}
	return lastLine(output)
}

// failureIn returns the first of the last lines that names a failure, or "".
func failureIn(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for _, line := range lines[max(0, len(lines)-lastLines):] {
		if namesFailure(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func lastLine(output string) string {
	text := strings.TrimSpace(output)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
