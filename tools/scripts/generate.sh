#!/bin/bash
# generate.sh PROTOC_GEN_GO@V PROTOC_GEN_GO_GRPC@V - makes the committed gRPC code
# from each .proto file. Needs protoc (apt-get install protobuf-compiler).
set -eu
cd "$(dirname "$0")/../.."
go=${GO:-go}
bin=$PWD/.build/bin
if ! command -v protoc >/dev/null; then
    echo "generate needs protoc: apt-get install protobuf-compiler" >&2
    exit 1
fi
mkdir -p "$bin"
for module in "$@"; do
    GOBIN=$bin "$go" install "$module"
done
while IFS= read -r proto; do
    echo "$proto"
    (cd "$(dirname "$(dirname "$proto")")" && PATH=$bin:$PATH protoc --go_out=. --go_opt=paths=source_relative \
        --go-grpc_out=. --go-grpc_opt=paths=source_relative "$(basename "$(dirname "$proto")")/$(basename "$proto")")
done < <(find . -name '*.proto' -not -path './.build/*' | sort)
