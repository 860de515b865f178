one: {http.query: [{name: URL/x}, {status: 200}, {match: hello}]}
two: {http.query: [{name: URL/nosuch}, {status: 200}]}
three: {http.query: [{name: 'http://127.0.0.1:1/'}, {status: 200}]}
four: {http.query: [{name: URL/four}]}
five: {http.query: [{name: URL/x?5}, {status: [200, 201]}, {status_type: list}]}
six: {http.query: [{name: URL/x?6}, {match: 'h.llo$'}, {match_type: pcre}, {status: '2..'}, {status_type: pcre}]}
seven: {http.query: [{name: URL/x?7}, {status: 201}, {match: nothing}]}
eight: {http.query: [{name: URL/x?8}, {status: [404, 201]}, {status_type: list}]}
nine: {http.wait_for_successful_query: [{name: 'http://127.0.0.1:1/9'}, {wait_for: 1}, {request_interval: 1}, {status: 200}]}
ten: {http.wait_for_successful_query: [{name: URL/x?10}, {wait_for: 1}, {status: 200}]}
